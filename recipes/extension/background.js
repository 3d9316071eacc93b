// A click on the extension's icon opens the panel, which stays open while its person reads on.
chrome.sidePanel.setPanelBehavior({ openPanelOnActionClick: true });

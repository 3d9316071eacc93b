// A click on the icon opens the panel, and lets it read the page that is open.
chrome.action.onClicked.addListener((tab) => {
  chrome.sidePanel.open({ windowId: tab.windowId });
});

// The offscreen document has the model, too: it stays when this worker, the popup and the panel are gone.
let creating;
async function keep() {
  if (await chrome.offscreen.hasDocument()) return;
  creating ??= chrome.offscreen
    .createDocument({ url: 'offscreen.html', reasons: ['WORKERS'], justification: 'A worker runs the model' })
    .finally(() => (creating = undefined));
  await creating;
}

chrome.runtime.onMessage.addListener((message) => {
  if (message === 'keep') keep();
});

chrome.runtime.onInstalled.addListener(() => {
  chrome.contextMenus.create({ id: 'explain', title: 'Explain "%s"', contexts: ['selection'] });
});

// A click gives the right to the page that is open.
chrome.contextMenus.onClicked.addListener(async (_, tab) => {
  await keep();
  await chrome.scripting.executeScript({ target: { tabId: tab.id }, files: ['content.js'] });
});

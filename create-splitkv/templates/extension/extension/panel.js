import './splitkv/splitkv-chat.js';

/** Characters of a page that fit a small model's context beside the answer. */
const MOST = 6000;

const chat = document.querySelector('splitkv-chat');
const told = document.querySelector('#told');

document.querySelector('#read').addEventListener('click', async () => {
  try {
    const [tab] = await chrome.tabs.query({ active: true, currentWindow: true });
    const [{ result }] = await chrome.scripting.executeScript({
      target: { tabId: tab.id },
      func: () => getSelection().toString() || document.body.innerText,
    });
    chat.about = result.slice(0, MOST);
    told.textContent = `${chat.about.length} of ${result.length} characters read: questions are about them`;
  } catch {
    told.textContent = "This page can't be read. Click the extension's icon on the page first.";
  }
});

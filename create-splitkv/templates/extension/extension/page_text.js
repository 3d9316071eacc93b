/** Characters of a page that fit a small model's context beside the answer. */
const MOST = 6000;

/** What is selected on the page that is open, or its beginning; undefined where the extension may not read. */
export async function pageText() {
  try {
    const [tab] = await chrome.tabs.query({ active: true, currentWindow: true });
    const [{ result }] = await chrome.scripting.executeScript({
      target: { tabId: tab.id },
      func: () => getSelection().toString() || document.body.innerText,
    });
    return { text: result.slice(0, MOST), of: result.length };
  } catch {
    return undefined;
  }
}

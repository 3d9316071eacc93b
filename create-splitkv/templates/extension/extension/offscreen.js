import { loadModel } from './model.js';

let loading;

/** Again where it failed, say without a network. */
function model() {
  loading ??= loadModel().catch((error) => {
    loading = undefined;
    throw error;
  });
  return loading;
}
model().catch(() => {});

// Scripts in pages are of the pages' origins: they ask here.
chrome.runtime.onConnect.addListener((port) => {
  const gone = new AbortController();
  port.onDisconnect.addListener(() => gone.abort());
  const tell = (message) => gone.signal.aborted || port.postMessage(message);
  port.onMessage.addListener(async (content) => {
    try {
      const answer = (await model()).generate(
        { messages: [{ role: 'user', content }] },
        { maxTokens: 200, signal: gone.signal },
      );
      for await (const text of answer) tell({ text });
      tell({ done: true });
    } catch (error) {
      tell({ text: `No answer: ${error.message}`, done: true });
    }
  });
});

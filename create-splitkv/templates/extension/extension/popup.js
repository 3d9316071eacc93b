import { keepModel, loadModel } from './model.js';
import { pageText } from './page_text.js';

const answer = document.querySelector('#answer');
const { id: windowId } = await chrome.windows.getCurrent();

document.querySelector('#chat').addEventListener('click', () => chrome.sidePanel.open({ windowId }));
document.querySelector('#sum').addEventListener('click', async ({ target }) => {
  target.disabled = true;
  answer.textContent = '…';
  try {
    const page = await pageText();
    if (!page) throw new Error("this page can't be read");
    const model = await loadModel(({ loadedBytes, totalBytes }) => {
      if (totalBytes > 0) answer.textContent = `Loading the model: ${Math.round((100 * loadedBytes) / totalBytes)} %`;
    });
    await keepModel();
    let said = '';
    const content = `Sum up in two sentences:\n\n${page.text}`;
    for await (const text of model.generate({ messages: [{ role: 'user', content }] }, { maxTokens: 200 }))
      answer.textContent = said += text;
    await model.dispose();
  } catch (error) {
    answer.textContent = `No answer: ${error.message}`;
  }
  target.disabled = false;
});

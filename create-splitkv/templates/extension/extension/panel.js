import './splitkv/splitkv-chat.js';
import { keepModel } from './model.js';
import { pageText } from './page_text.js';

const chat = document.querySelector('splitkv-chat');
const told = document.querySelector('#told');

chat.addEventListener('splitkv-ready', keepModel);
document.querySelector('#read').addEventListener('click', async () => {
  const page = await pageText();
  if (page) chat.about = page.text;
  told.textContent = page
    ? `${page.text.length} of ${page.of} characters read: questions are about them`
    : "This page can't be read. Click the extension's icon on the page first.";
});

// In the page: what the model says of the selection, in a box. A click on it takes it away, and ends the answer.
(() => {
  const box = document.createElement('splitkv-box');
  Object.assign(box.style, {
    position: 'fixed',
    right: '1rem',
    bottom: '1rem',
    zIndex: 2147483647,
    maxWidth: '24rem',
    padding: '1rem',
    background: '#fff',
    color: '#111',
    border: '1px solid',
    whiteSpace: 'pre-wrap',
  });
  box.textContent = '…';
  document.body.append(box);

  const port = chrome.runtime.connect();
  let said = '';
  port.onMessage.addListener(({ text = '', done }) => {
    box.textContent = said += text;
    if (done) box.dataset.done = '';
  });
  box.addEventListener('click', () => {
    port.disconnect();
    box.remove();
  });
  port.postMessage(`Explain in two sentences:\n\n${getSelection().toString().slice(0, 2000)}`);
})();

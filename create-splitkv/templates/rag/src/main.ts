import { load, type LoadProgress } from 'splitkv';
import { openSearch } from './search';
import './style.css';

/** Finds passages. */
const EMBEDDER = 'BAAI/bge-small-en-v1.5';
/** Answers from them. */
const MODEL = '__MODEL__';
const PASSAGES = 2;

const part = <E extends HTMLElement>(selector: string): E => document.querySelector<E>(selector)!;
const state = part('#state');
const form = part<HTMLFormElement>('form');
const answer = part('#answer');
const sources = part('#sources');

const tell =
  (what: string) =>
  ({ loadedBytes, totalBytes }: LoadProgress): void => {
    if (totalBytes) state.textContent = `${what}: ${Math.round((100 * loadedBytes) / totalBytes)} %`;
  };

async function begin(): Promise<void> {
  const embedder = await load(EMBEDDER, { onProgress: tell('Search model') });
  const model = await load(MODEL, { onProgress: tell('Answering model') });
  const search = await openSearch(embedder);
  state.textContent = 'Ready';
  form.hidden = false;
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    const question = String(new FormData(form).get('question'));
    try {
      const found = await search(question, PASSAGES);
      sources.replaceChildren(
        ...found.map(({ title, text }) => {
          const item = document.createElement('li');
          item.textContent = `${title}: ${text}`;
          return item;
        }),
      );
      const context = found.map(({ title, text }, index) => `[${index + 1}] ${title}: ${text}`).join('\n');
      const content = `Answer from these passages only, and name the passage in brackets, like [1].\n\n${context}\n\nQuestion: ${question}`;
      answer.textContent = '';
      for await (const piece of model.generate({ messages: [{ role: 'user', content }] }, { maxTokens: 200 })) {
        answer.textContent += piece;
      }
    } catch (error) {
      answer.textContent = error instanceof Error ? error.message : String(error);
    }
  });
}

const start = part<HTMLButtonElement>('#start');
start.addEventListener('click', () => {
  start.remove();
  begin().catch((error: unknown) => {
    state.textContent = error instanceof Error ? error.message : String(error);
  });
});

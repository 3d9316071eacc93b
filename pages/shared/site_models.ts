import { EMBEDDED_MODEL, QUESTIONS, STORY } from '../../models/example.js';
import type { SplitkvChat } from '../../src/app/chat/index.js';

const SUGGESTED = QUESTIONS.map(({ question }) => question).join('|');

/** The story and its questions belong to the embedded model: with any other one that comes, dropped or picked, they go. */
export function tellStory(chat: SplitkvChat): void {
  chat.addEventListener('splitkv-state', ({ detail: { state } }) => {
    if (state !== 'looking') return;
    const isExample = !chat.files && chat.model === EMBEDDED_MODEL;
    // What somebody chose meanwhile, such as a preset's question, stays.
    if (isExample || chat.about === STORY) chat.about = isExample ? STORY : undefined;
    if (isExample || chat.suggestions === SUGGESTED) chat.suggestions = isExample ? SUGGESTED : undefined;
  });
}

/** The model that this site carries beside the example, where whoever published it put one in (`npm run site -- --model PATH`). */
export function siteModel(): { readonly model: string; readonly name: string; readonly bytes: number } | undefined {
  const meta = document.querySelector<HTMLMetaElement>('meta[name="site-model"]');
  if (!meta) return undefined;
  const { name = '', bytes } = meta.dataset;
  return { model: meta.content, name, bytes: Number(bytes) };
}

import { EMBEDDED_MODEL, QUESTIONS, STORY } from '../../models/example.js';
import type { SplitkvChat } from '../../src/app/chat/index.js';

/** The story and its questions belong to the embedded model: with any other one that comes, dropped or picked, they go. */
export function tellStory(chat: SplitkvChat): void {
  chat.addEventListener('splitkv-state', ({ detail: { state } }) => {
    if (state !== 'looking') return;
    const isExample = !chat.files && chat.model === EMBEDDED_MODEL;
    chat.about = isExample ? STORY : undefined;
    chat.suggestions = isExample ? QUESTIONS.map(({ question }) => question).join('|') : undefined;
  });
}

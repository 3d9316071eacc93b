import { planModel } from 'splitkv';
import type { SplitkvChat } from 'splitkv/chat';
import 'splitkv/chat';
import './style.css';

const chat = document.querySelector<SplitkvChat>('splitkv-chat')!;
const list = document.querySelector('#ranks')!;
const plans = document.querySelector('#plans')!;

chat.addEventListener('splitkv-answer', ({ detail }) => {
  const { ranks, exchanges_per_token: exchanges } = detail.result.stats;
  list.replaceChildren(
    ...ranks.map(({ adapter, weight_bytes, bytes_per_token }, rank) => {
      const item = document.createElement('li');
      item.textContent =
        `Rank ${rank} on ${adapter}: ${(weight_bytes / 2 ** 20).toFixed(1)} MiB of weights, ` +
        `${Math.round(bytes_per_token)} bytes sent per token, in ${exchanges} exchanges`;
      return item;
    }),
  );
});

// Measures this machine, and predicts every plan, without loading the weights.
document.querySelector('#ask')!.addEventListener('click', async () => {
  plans.textContent = 'Measuring…';
  try {
    const { table, why } = await planModel(chat.model!, {
      ranks: 2,
      onProgress: (what) => (plans.textContent = what),
    });
    plans.textContent = `${table}\n${why}`;
  } catch (error) {
    plans.textContent = error instanceof Error ? error.message : String(error);
  }
});

import './style.css';
import type { SplitkvChat } from 'splitkv/chat';
import 'splitkv/chat';

const chat = document.querySelector<SplitkvChat>('splitkv-chat')!;
const speed = document.querySelector('#speed')!;

chat.addEventListener('splitkv-answer', ({ detail }) => {
  speed.textContent = `${detail.result.stats.tokens_per_second.toFixed(1)} tokens per second`;
});

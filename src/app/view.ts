import { formatBytes } from '../base/math.js';
import type { GenerateResult, LoadProgress, ModelInfo } from '../index.js';
import { progressLine } from './progress.js';

/** The elements of index.html by id, and what is written into them. No model in here. */
function element<T extends HTMLElement>(id: string, type: { new (): T }): T {
  const found = document.getElementById(id);
  if (!(found instanceof type)) throw new Error(`index.html has no ${type.name} #${id}`);
  return found;
}

export const ui = {
  status: element('model-status', HTMLParagraphElement),
  progress: element('progress', HTMLProgressElement),
  facts: element('model-facts', HTMLDListElement),
  folder: element('folder', HTMLInputElement),
  error: element('error', HTMLElement),
  errorText: element('error-text', HTMLParagraphElement),
  form: element('form', HTMLFormElement),
  story: element('story', HTMLTextAreaElement),
  question: element('question', HTMLInputElement),
  send: element('send', HTMLButtonElement),
  stop: element('stop', HTMLButtonElement),
  suggestions: element('suggestions', HTMLDivElement),
  answer: element('answer', HTMLParagraphElement),
  stats: element('stats', HTMLParagraphElement),
  ranks: element('ranks', HTMLTableElement),
};

export function showError(error: unknown): void {
  ui.errorText.textContent = error instanceof Error ? error.message : String(error);
  ui.error.hidden = false;
}

export function hideError(): void {
  ui.error.hidden = true;
}

export function showProgress(name: string, progress: LoadProgress): void {
  ui.status.textContent = `${name}: ${progressLine(progress)}`;
  ui.progress.hidden = false;
  if (progress.totalBytes > 0) {
    ui.progress.max = progress.totalBytes;
    ui.progress.value = progress.loadedBytes;
  } else {
    ui.progress.removeAttribute('value');
  }
}

export function showModel(info: ModelInfo): void {
  ui.progress.hidden = true;
  ui.status.textContent = `${info.name} is ready.`;
  const kind = info.adapter.software ? ' (software: runs on the CPU, slowly)' : '';
  const facts: readonly (readonly [string, string])[] = [
    ['Parameters', `${(info.parameters / 1e6).toFixed(2)} M`],
    ['Weights', `${info.weights}, ${formatBytes(info.weightBytes)}`],
    ['KV cache', `${info.kv}, ${formatBytes(info.kvBytes)}`],
    ['Context', `${info.contextLength} tokens`],
    ['Loaded in', `${info.loadSeconds.toFixed(2)} s`],
    ['Adapter', info.adapter.name + kind],
  ];
  ui.facts.replaceChildren(
    ...facts.map(([term, text]) => {
      const pair = document.createElement('div');
      pair.append(textElement('dt', term), textElement('dd', text));
      return pair;
    }),
  );
  ui.facts.hidden = false;
}

const ENDINGS: Readonly<Record<GenerateResult['finish_detail'], string>> = {
  eos: '',
  stop_string: '',
  max_tokens: 'cut at the token limit',
  context_full: 'cut: the context is full',
  aborted: 'stopped',
};

export function showStats({ tokens, prompt_tokens, finish_detail, stats }: GenerateResult): void {
  const parts = [
    `${stats.tokens_per_second.toFixed(1)} tokens/s`,
    `first token after ${stats.ttft_ms.toFixed(0)} ms`,
    `${stats.dispatches_per_token.toFixed(1)} dispatches a token`,
    `${prompt_tokens} tokens in, ${tokens.length} out`,
    stats.adapter,
    ENDINGS[finish_detail],
  ];
  ui.stats.textContent = parts.filter((part) => part !== '').join(' · ');
  const rows = stats.ranks.map(({ adapter, weight_bytes, kv_bytes }, rank) => {
    const row = document.createElement('tr');
    for (const text of [String(rank), adapter, formatBytes(weight_bytes), formatBytes(kv_bytes)]) {
      row.append(textElement('td', text));
    }
    return row;
  });
  ui.ranks.tBodies[0]!.replaceChildren(...rows);
  ui.ranks.hidden = false;
}

function textElement(tag: string, text: string): HTMLElement {
  const node = document.createElement(tag);
  node.textContent = text;
  return node;
}

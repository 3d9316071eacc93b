import { formatBytes } from '../../src/base/math.js';
import type { GenerateResult, LoadProgress, ModelInfo } from '../../src/index.js';
import { pair } from '../../src/app/shared/dom.js';
import { element } from '../shared/elements.js';
import { progressLine } from '../../src/app/shared/progress.js';

/** The elements of ranks.html by id, and what is written into them. No model in here. */
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
  adapters: element('adapters', HTMLParagraphElement),
  compare: element('compare', HTMLButtonElement),
  compareStatus: element('compare-status', HTMLParagraphElement),
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
  const adapters = [...new Set(info.ranks.map(({ adapter }) => adapter))].join(' + ');
  const kind = info.adapter.software ? ' (software: runs on the CPU, slowly)' : '';
  const facts: readonly (readonly [string, string])[] = [
    ['Parameters', `${(info.parameters / 1e6).toFixed(2)} M`],
    ['Weights', `${info.weights}, ${formatBytes(info.weightBytes)}`],
    ['KV cache', `${info.kv}, ${formatBytes(info.kvBytes)}`],
    ['Context', `${info.contextLength} tokens`],
    ['Loaded in', `${info.loadSeconds.toFixed(2)} s`],
    ['Adapter', adapters + kind],
  ];
  ui.facts.replaceChildren(...facts.map(([term, text]) => pair(term, text)));
  ui.facts.hidden = false;
}

const ENDINGS: Readonly<Record<GenerateResult['finish_detail'], string>> = {
  eos: '',
  stop_token: '',
  stop_string: '',
  max_tokens: 'cut at the token limit',
  context_full: 'cut: the context is full',
  aborted: 'stopped',
};

export function showStats({ tokens, prompt_tokens, finish_detail, stats }: GenerateResult): void {
  const parts = [
    `${stats.tokens_per_second.toFixed(1)} tokens/s`,
    `first token after ${stats.ttft_ms.toFixed(0)} ms`,
    `${stats.dispatches_per_token.toFixed(1)} dispatches per token`,
    `${prompt_tokens} tokens in, ${tokens.length} out`,
    stats.adapter,
    ENDINGS[finish_detail],
  ];
  ui.stats.textContent = parts.filter((part) => part !== '').join(' · ');
}

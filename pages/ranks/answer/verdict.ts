/**
 * Room: what a second GPU buys, in a sentence (here), as bars and as a token's time (answer_panel.ts): from the planner,
 * and from runs in turns (compare.ts). main.ts (..) brings them together.
 */

import { formatBytes } from '../../../src/base/math.js';

/** What a token's time goes to on a rank, in ms; they add up to it. */
export interface TokenTime {
  readonly compute: number;
  readonly exchange: number;
  readonly wait: number;
}

export interface Speed {
  readonly tokensPerSecond: number;
  /** Not predicted. */
  readonly measured: boolean;
}

/** Bytes of the fullest rank. */
export interface Held {
  readonly weightBytes: number;
  readonly kvBytes: number;
}

export interface Comparison {
  readonly ranks: number;
  /** Different GPUs that the ranks are on: fewer than ranks where they share one. */
  readonly gpus: number;
  /** What they share is the CPU. */
  readonly software: boolean;
  readonly plan: string;
  readonly one: Speed;
  readonly many: Speed;
  /** Of the ranks, what they spend of a token's time apart from their own work, at most; ms. Undefined where nobody knows. */
  readonly besides: { readonly ms: number; readonly ofMs: number } | undefined;
  readonly held: { readonly one: Held; readonly many: Held } | undefined;
}

const WORDS = ['no', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight'];
export const inWords = (count: number): string => WORDS[count] ?? String(count);
const capital = (text: string): string => text[0]!.toUpperCase() + text.slice(1);

/** Speeds nearer to each other than this, as a share, are called equal. */
const ALIKE = 0.05;

const times = (value: number): string => {
  const text = value.toFixed(value < 10 ? 1 : 0).replace(/\.0$/, '');
  return text === '2' ? 'twice' : `${text} times`;
};

/** Memory that is less than so many times as large is no reason. */
const WORTH = 1.15;

export const speedText = (tokensPerSecond: number): string =>
  tokensPerSecond >= 100 ? tokensPerSecond.toFixed(0) : Number(tokensPerSecond.toPrecision(2)).toString();

/** Whether several GPUs are better than one here: the speeds, the reason, and what the memory is good for. */
export function verdict({ ranks, gpus, software, plan, one, many, besides, held }: Comparison): string {
  const shared = gpus < ranks;
  const where = software ? 'the CPU' : gpus === 1 ? 'one GPU' : `${inWords(gpus)} GPUs`;
  const several = `${inWords(ranks)} ${shared ? `ranks on ${where}` : 'GPUs'}`;
  const short = inWords(ranks);
  const ratio = many.tokensPerSecond / one.tokensPerSecond;
  const from = one.measured === many.measured ? (one.measured ? ', measured' : ', predicted') : '';
  const source = ({ measured }: Speed): string => (from === '' ? ` (${measured ? 'measured' : 'predicted'})` : '');
  const ms = (value: number): string => value.toFixed((besides?.ofMs ?? 0) < 10 ? 1 : 0);
  const cost = besides && `${ms(besides.ms)} of ${ms(besides.ofMs)} ms a token go to exchanging and waiting`;
  const speeds =
    `${capital(several)} (${plan}) make ${speedText(many.tokensPerSecond)} tokens/s${source(many)}, ` +
    `one makes ${speedText(one.tokensPerSecond)}${source(one)}${from}`;
  const why = [...(shared ? ['they share it'] : []), ...(cost === undefined ? [] : [cost])].join(', and ');
  const outcome =
    ratio > 1 + ALIKE
      ? `${short} are ${times(ratio)} as fast here${cost === undefined ? '' : `, though ${cost}`}`
      : ratio < 1 - ALIKE
        ? `one is ${times(1 / ratio)} as fast here${why === '' ? '' : `, because ${why}`}`
        : `they are equally fast here${cost === undefined ? '' : `, as ${cost}`}`;
  return [`${speeds}: ${outcome}.`, memoryText(held, short, shared)].filter((part) => part !== '').join(' ');
}

function memoryText(held: Comparison['held'], several: string, shared: boolean): string {
  if (!held) return '';
  const { one, many } = held;
  const weights = one.weightBytes / many.weightBytes;
  const cache = one.kvBytes / many.kvBytes;
  const each = (of: keyof Held): string => `${formatBytes(many[of])} each instead of ${formatBytes(one[of])}`;
  const who = shared ? `On GPUs of their own ${several} would hold` : `${capital(several)} hold`;
  if (weights >= WORTH) return `${who} a model ${times(weights)} as large: ${each('weightBytes')}.`;
  if (cache >= WORTH) return `${who} a context ${times(cache)} as long: ${each('kvBytes')} of cache.`;
  return `${who} no larger a model: each has all of it.`;
}

/**
 * What a machine could add, behind a sentence that names its GPU.
 * @param gpus different ones that the browser shows
 * @param software the one is the CPU
 */
export function whatToAdd(gpus: number, software: boolean): string {
  if (gpus !== 1) return '';
  return (
    `They share ${software ? 'the CPU, which is what WebGPU runs on here' : 'it'}: virtual ranks, which show who would hold what, and ` +
    'are no faster. What could be added: a second GPU. One in the processor counts beside one on a card, where the browser shows both; ' +
    'the command line looks at several cards (npx splitkv plan MODEL --ranks 2).'
  );
}

import { isKvOnly, type ModelShape, type Plan, type Stage, type VocabShare } from '../plan.js';
import { count } from '../../base/lists.js';
import { dataPlaces } from '../sequences/sequence_ranges.js';
import type { Refuse } from './refuse.js';

/** Cuts of the vocabulary lie at multiples of this many rows, so that a rank's part packs like any matrix. */
export const VOCAB_GRANULE = 64;

/** Refuses an embedding table or head whose rows aren't placed as `Plan` says. */
export function checkVocabulary({ stages, embedding, head }: Plan, { vocabSize }: ModelShape, refuse: Refuse): void {
  const first = ranksOf(stages[0]!);
  const last = ranksOf(stages.at(-1)!);
  checkHolders(embedding, first, 'embedding', 'first', refuse);
  checkHolders(head, last, 'head', 'last', refuse);
  for (const ranks of placesOf(stages[0]!, first)) {
    const own = embedding.filter(({ rank }) => ranks.has(rank));
    const name = nameOf('embedding', ranks, first);
    const replicated = own.length > 1 && own.every(({ rows: [a, b] }) => a === 0 && b === vocabSize);
    if (!replicated) checkRows(own, vocabSize, name, refuse);
    else if (own.length !== ranks.size) {
      throw refuse(
        `${name}: ${own.length} of ${ranks === first ? "the first stage's" : 'these'} ${ranks.size} ranks hold all rows; ` +
          'every rank of it must, or cut the rows between ranks',
      );
    }
  }
  for (const ranks of placesOf(stages.at(-1)!, last)) {
    const own = head.filter(({ rank }) => ranks.has(rank));
    checkRows(own, vocabSize, nameOf('head', ranks, last), refuse);
  }
}

/** Ranks that embed and sample the same rows: all, or each place where places run rows of their own. */
const placesOf = ({ kind, shares }: Stage, all: Set<number>): Set<number>[] =>
  kind === 'adp' ? dataPlaces(shares).map((place) => new Set(place.map(({ rank }) => rank))) : [all];

const nameOf = (what: string, ranks: Set<number>, all: Set<number>): string =>
  ranks === all
    ? what
    : `${what} of ${count(ranks.size, 'rank')} that ${ranks.size === 1 ? 'runs rows of its' : 'run rows of their'} own (${[...ranks].join(', ')})`;

const ranksOf = (stage: Stage): Set<number> =>
  new Set(stage.shares.filter((share) => !isKvOnly(share)).map(({ rank }) => rank));

function checkHolders(
  shares: readonly VocabShare[],
  allowed: ReadonlySet<number>,
  name: string,
  stage: string,
  refuse: Refuse,
): void {
  const seen = new Set<number>();
  for (const { rank } of shares) {
    if (!allowed.has(rank)) {
      throw refuse(
        `${name}: rank ${rank} is not in the ${stage} stage; its rows belong on rank ${[...allowed].join(', ')}`,
      );
    }
    if (seen.has(rank)) throw refuse(`${name}: rank ${rank} is listed twice; give it one range of rows`);
    seen.add(rank);
  }
}

function checkRows(shares: readonly VocabShare[], vocabSize: number, name: string, refuse: Refuse): void {
  let next = 0;
  for (const { rank, rows } of shares) {
    const [first, end] = rows;
    const bad = (why: string): Error => refuse(`${name}: rank ${rank} has rows [${first}, ${end}]: ${why}`);
    if (first !== next) throw bad(`expected them to start at ${next}, without gap or overlap and in order`);
    if (!Number.isInteger(end) || end <= first || end > vocabSize) {
      throw bad(`expected their end above ${first} and at most ${vocabSize}, the vocabulary's size`);
    }
    if (end !== vocabSize && end % VOCAB_GRANULE !== 0) throw bad(`cut at multiples of ${VOCAB_GRANULE}`);
    next = end;
  }
  if (next !== vocabSize) throw refuse(`${name}: rows ${next} to ${vocabSize - 1} are held by no rank`);
}

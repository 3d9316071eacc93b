import { isKvOnly, type ModelShape, type Plan, type Stage, type VocabShare } from '../plan.js';
import type { Refuse } from './refuse.js';

/** Cuts of the vocabulary lie at multiples of this many rows, so that a rank's part packs like any matrix. */
export const VOCAB_GRANULE = 64;

/** Refuses an embedding table or head whose rows aren't placed as `Plan` says. */
export function checkVocabulary({ stages, embedding, head }: Plan, { vocabSize }: ModelShape, refuse: Refuse): void {
  const first = ranksOf(stages[0]!);
  const last = ranksOf(stages.at(-1)!);
  checkHolders(embedding, first, 'embedding', 'first', refuse);
  checkHolders(head, last, 'head', 'last', refuse);
  if (stages[0]!.kind === 'adp') {
    checkWhole(embedding, first, vocabSize, 'embedding', refuse);
    checkWhole(head, last, vocabSize, 'head', refuse);
    return;
  }
  const replicated = embedding.length > 1 && embedding.every(({ rows: [a, b] }) => a === 0 && b === vocabSize);
  if (!replicated) checkRows(embedding, vocabSize, 'embedding', refuse);
  else if (embedding.length !== first.size) {
    throw refuse(
      `embedding: ${embedding.length} of the first stage's ${first.size} ranks hold all rows; ` +
        'every rank of it must, or cut the rows between ranks',
    );
  }
  checkRows(head, vocabSize, 'head', refuse);
}

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

/** Each rank embeds and samples its own rows. */
function checkWhole(
  shares: readonly VocabShare[],
  ranks: Set<number>,
  vocabSize: number,
  name: string,
  refuse: Refuse,
): void {
  for (const rank of ranks) {
    const rows = shares.find((share) => share.rank === rank)?.rows;
    if (rows?.[0] === 0 && rows[1] === vocabSize) continue;
    throw refuse(
      `${name}: rank ${rank} has ${rows ? `rows [${rows.join(', ')}]` : 'no rows'}; where every rank runs its own rows, ` +
        `give each all of them: [0, ${vocabSize}]`,
    );
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

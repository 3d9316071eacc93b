import { sameList, showList } from '../../base/lists.js';
import { hasGap, isKvOnly, type RankShare, STAGE_KINDS, type Stage, type StageKind } from '../plan.js';
import type { Refuse } from '../check/refuse.js';

/** The kind of a stage that doesn't say it, in a file of an earlier version, and of an arrangement's layer: some come to a plain cut. */
export function kindOf(shares: readonly RankShare[]): StageKind {
  if (shares.some(({ sequences }) => sequences !== undefined)) return runsOwnRows(shares) ? 'adp' : 'token';
  return shares.some(isFreelyHeld) ? 'arranged' : 'tensor';
}

/** Every rank has all that a row's attention needs. */
const runsOwnRows = (shares: readonly RankShare[]): boolean =>
  shares.length > 1 &&
  shares.every((share) => share.sequences !== undefined && !isKvOnly(share) && sameList(share.heads, shares[0]!.heads));

/** What a rank holds in 'arranged' stages only. */
const isFreelyHeld = (share: RankShare): boolean =>
  share.copies !== undefined ||
  hasGap(share.heads) ||
  (!isKvOnly(share) && share.experts.length === 0 && (share.heads.length === 0 || share.mlp.length === 0));

/** Refuses a stage whose ranks hold what its kind doesn't know. A plain cut may be called arranged. */
export function checkKind({ kind, shares }: Stage, refuse: Refuse): void {
  if (!STAGE_KINDS.includes(kind)) throw refuse(`kind is '${kind}'; use ${STAGE_KINDS.join(', ')}`);
  const keeper = shares.find(({ sequences }) => sequences !== undefined);
  const shardsThem = kind === 'token' || kind === 'adp';
  if (keeper && !shardsThem) {
    throw refuse(
      `rank ${keeper.rank} has sequences, which kind '${kind}' doesn't shard: leave them out, or write "kind": ` +
        `"${kindOf(shares)}"`,
    );
  }
  if (!keeper && shardsThem) {
    throw refuse(`kind '${kind}' shards sequences, and no rank has any: give every rank a weight in sequences`);
  }
  if (kind === 'tensor') checkTensor(shares, refuse);
  if (kind === 'adp') checkOwnRows(shares, refuse);
  if (kind === 'token' && runsOwnRows(shares)) {
    throw refuse(
      `kind 'token', but ranks ${showList(shares.map(({ rank }) => rank))} all hold the same heads: write "kind": "adp", or leave ` +
        'heads, MLP segments and experts to one of them',
    );
  }
}

function checkTensor(shares: readonly RankShare[], refuse: Refuse): void {
  const bare = shares.find(isKvOnly);
  if (bare) {
    throw refuse(
      `rank ${bare.rank} holds no weights: give it some, or write "kind": "token" and sequences for KV-only ranks`,
    );
  }
  const copied = shares.find(({ copies }) => copies !== undefined);
  if (copied) throw refuse(`rank ${copied.rank} has copies of heads: write "kind": "arranged", or leave copies out`);
  const torn = shares.find(({ heads }) => hasGap(heads));
  if (torn) {
    throw refuse(
      `rank ${torn.rank}: heads ${showList(torn.heads)} have a gap: hold neighbours, or write "kind": "arranged"`,
    );
  }
}

function checkOwnRows(shares: readonly RankShare[], refuse: Refuse): void {
  if (shares.length === 1) throw refuse(`kind 'adp' on one rank: write "kind": "tensor", and leave sequences out`);
  const [first] = shares as [RankShare];
  const other = shares.find((share) => isKvOnly(share) || !sameList(share.heads, first.heads));
  if (!other) return;
  throw refuse(
    `rank ${other.rank} holds heads ${showList(other.heads)}, rank ${first.rank} ${showList(first.heads)}; with kind 'adp' every rank ` +
      'holds all: give them all, or write "kind": "token" for a root and KV-only ranks',
  );
}

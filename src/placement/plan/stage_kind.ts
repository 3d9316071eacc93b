import { nth, sameList, showList } from '../../base/lists.js';
import { dataPlaces } from '../sequences/sequence_ranges.js';
import { hasGap, isKvOnly, type RankShare, STAGE_KINDS, type Stage, type StageKind } from '../plan.js';
import type { Refuse } from '../check/check_weights.js';

/** The kind of a stage that doesn't say it, in a file of an earlier version, and of an arrangement's layer: some come to a plain cut. */
export function kindOf(shares: readonly RankShare[]): StageKind {
  if (shares.some(({ sequences }) => sequences !== undefined)) return runsOwnRows(shares) ? 'adp' : 'token';
  return shares.some(isFreelyHeld) ? 'arranged' : 'tensor';
}

/** Every rank, or group of neighbours, has all that a row's attention needs. */
const runsOwnRows = (shares: readonly RankShare[]): boolean =>
  shares.every((share) => share.sequences !== undefined && !isKvOnly(share)) && dataPlaces(shares).length > 1;

/** What a rank holds in 'arranged' stages only. */
const isFreelyHeld = (share: RankShare): boolean =>
  share.copies !== undefined ||
  hasGap(share.heads) ||
  (!isKvOnly(share) && (share.heads.length === 0 || share.mlp.length === 0));

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
      `kind 'token', but ranks ${namesOf(shares)} all hold weights, and all heads more than once: write "kind": "adp", or leave ` +
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

/** Groups of neighbours that are alike, each with all heads and lanes. */
function checkOwnRows(shares: readonly RankShare[], refuse: Refuse): void {
  const bare = shares.find((share) => share.heads.length === 0);
  if (bare) {
    throw refuse(
      `rank ${bare.rank} holds no heads; with kind 'adp' every rank has weights: give it some, or write "kind": "token" for a root and ` +
        'KV-only ranks',
    );
  }
  const [first, ...others] = dataPlaces(shares);
  if (!first || others.length === 0) {
    throw refuse(
      shares.length === 1
        ? `kind 'adp' on one rank: write "kind": "tensor", and leave sequences out`
        : `kind 'adp', but only together do ranks ${namesOf(shares)} hold all heads and lanes, so there is one group of ranks: write ` +
            '"kind": "tensor" and leave sequences out, or give every rank all heads and lanes',
    );
  }
  const odd = others.find(({ length }) => length !== first.length);
  if (odd) {
    throw refuse(
      `ranks ${namesOf(first)} hold all heads and lanes together, and so do ranks ${namesOf(odd)}, which are not as many: make all groups ` +
        'alike',
    );
  }
  for (const place of others) {
    for (const [at, share] of place.entries()) {
      const like = nth(first, at);
      const key = (['heads', 'kvHeads', 'lanes'] as const).find((name) => !sameList(share[name], like[name]));
      if (key === undefined) continue;
      throw refuse(
        `rank ${share.rank} has ${key} ${showList(share[key])}, rank ${like.rank} ${showList(like[key])}; ranks ${namesOf(place)} share ` +
          `a request as ranks ${namesOf(first)} do: make all groups alike`,
      );
    }
  }
}

const namesOf = (ranks: readonly RankShare[]): string => showList(ranks.map(({ rank }) => rank));

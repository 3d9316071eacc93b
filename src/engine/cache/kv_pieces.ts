import { KV_BLOCK } from '../../base/kv_units.js';
import { ceilDiv, joinBytes } from '../../base/math.js';
import { range } from '../../base/lists.js';
import type { Plan, RankShare } from '../../placement/index.js';
import type { HandedKv, KvPiece } from '../contracts/prefill_worker.js';

export interface CutOptions {
  readonly numLayers: number;
  /** kv heads of a whole cache block. */
  readonly kvHeads: number;
  /** Blocks before it are there already. */
  readonly firstBlock: number;
  /** The rank keeps the sequence, as far as whole sequences are sharded over ranks. */
  readonly keeps: boolean;
  /** The rank's heads have blocks of their own: prompts are compressed, or heads are copied. */
  readonly byHead: boolean;
}

/** Cuts a handover for one rank: its layers and its kv heads; nothing of a sequence that another rank keeps. */
export function pieceFor(plan: Plan, rank: number, kv: HandedKv, options: CutOptions): KvPiece {
  const { numLayers, firstBlock, keeps, byHead } = options;
  const perLayer = kv.buffers.length / numLayers;
  const parts: Uint8Array[] = [];
  const entries = new Map<number, readonly number[]>();
  for (const { layers, shares } of plan.stages) {
    const share = shares.find((candidate) => candidate.rank === rank);
    if (!share || !keeps) continue;
    for (const layer of range(...layers)) {
      const own = share.kvHeads.map((head) => kv.entries?.[layer]![head] ?? kv.tokens);
      if (byHead) entries.set(layer, own);
      for (const buffer of range(layer * perLayer, (layer + 1) * perLayer)) {
        parts.push(...(byHead ? headParts : blockParts)(kv, { layer, buffer, share, ...options }));
      }
    }
  }
  const runsRow = keeps || !plan.stages.some(({ kind }) => kind === 'adp');
  const samples = runsRow && plan.head.some(({ rank: holder, rows }) => holder === rank && rows[1] > rows[0]);
  return {
    tokens: kv.tokens,
    firstBlock,
    bytes: parts.length > 0 ? joinBytes(parts) : undefined,
    lastRow: samples ? kv.lastRow : undefined,
    ...(byHead && keeps && { entries }),
  };
}

interface BufferPart extends Pick<CutOptions, 'kvHeads' | 'firstBlock'> {
  readonly layer: number;
  readonly buffer: number;
  readonly share: RankShare;
}

/** Of a share's heads, block after block. */
function blockParts({ buffers, blocks }: HandedKv, { buffer, share, kvHeads, firstBlock }: BufferPart): Uint8Array[] {
  const bytes = buffers[buffer]!;
  const size = bytes.byteLength / blocks / kvHeads;
  return range(firstBlock, blocks).flatMap((block) =>
    share.kvHeads.map((head) => bytes.subarray((block * kvHeads + head) * size, (block * kvHeads + head + 1) * size)),
  );
}

/** Of a share's heads, head after head. */
function headParts(kv: HandedKv, { layer, buffer, share, kvHeads }: BufferPart): Uint8Array[] {
  const bytes = kv.buffers[buffer]!;
  const counts = range(0, kvHeads).map((head) => ceilDiv(kv.entries?.[layer]![head] ?? kv.tokens, KV_BLOCK));
  const all = counts.reduce((sum, count) => sum + count, 0);
  const size = bytes.byteLength / all;
  return share.kvHeads.flatMap((head) => {
    const before = counts.slice(0, head).reduce((sum, count) => sum + count, 0);
    return range(0, counts[head]!).map((block) => {
      const at = kv.entries ? before + block : block * kvHeads + head;
      return bytes.subarray(at * size, (at + 1) * size);
    });
  });
}

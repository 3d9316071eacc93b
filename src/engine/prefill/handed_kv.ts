import type { Plan } from '../../placement/index.js';

/** Keys and values of a prompt that another device computed, and the prompt's last row. Plain data. */
export interface HandedKv {
  /** Tokens of the prompt. */
  readonly tokens: number;
  /** KV blocks that they take. */
  readonly blocks: number;
  /**
   * The sequence's blocks, one after the other, in each cache buffer: as many buffers a layer, in the order of the layers, in the
   * cache's own layout with all kv heads.
   */
  readonly buffers: readonly Uint8Array[];
  /** f32 [hiddenStride]: the last layer's output for the last token, before the final norm. */
  readonly lastRow: Float32Array;
}

/** What of a handover goes to one rank. */
export interface KvPiece {
  /** Tokens that the sequence has then. */
  readonly tokens: number;
  /** Logical block that the bytes begin with. */
  readonly firstBlock: number;
  /** [cache buffer of the rank][block] in the rank's layout; undefined where the rank keeps nothing of the sequence. */
  readonly bytes: Uint8Array | undefined;
  /** For ranks that hold rows of the output head. */
  readonly lastRow: Float32Array | undefined;
}

export interface CutOptions {
  readonly numLayers: number;
  /** kv heads of a whole cache block. */
  readonly kvHeads: number;
  /** Blocks before it are there already. */
  readonly firstBlock: number;
  /** The rank keeps the sequence, as far as whole sequences are sharded over ranks. */
  readonly keeps: boolean;
}

/** Cuts a handover for one rank: its layers and its kv heads; nothing of a sequence that another rank keeps. */
export function pieceFor(plan: Plan, rank: number, kv: HandedKv, options: CutOptions): KvPiece {
  const { numLayers, kvHeads, firstBlock, keeps } = options;
  const perLayer = kv.buffers.length / numLayers;
  const parts: Uint8Array[] = [];
  for (const { layers, shares } of plan.stages) {
    const share = shares.find((candidate) => candidate.rank === rank);
    if (!share || !keeps) continue;
    for (const buffer of kv.buffers.slice(layers[0] * perLayer, layers[1] * perLayer)) {
      const headBytes = buffer.byteLength / kv.blocks / kvHeads;
      for (let block = firstBlock; block < kv.blocks; block++) {
        for (const head of share.kvHeads) {
          const at = (block * kvHeads + head) * headBytes;
          parts.push(buffer.subarray(at, at + headBytes));
        }
      }
    }
  }
  const runsRow = keeps || !plan.stages.some(({ kind }) => kind === 'adp');
  const samples = runsRow && plan.head.some(({ rank: holder, rows }) => holder === rank && rows[1] > rows[0]);
  return {
    tokens: kv.tokens,
    firstBlock,
    bytes: parts.length > 0 ? joined(parts) : undefined,
    lastRow: samples ? kv.lastRow : undefined,
  };
}

function joined(parts: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(parts.reduce((sum, { byteLength }) => sum + byteLength, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.byteLength;
  }
  return all;
}

import type { Sequence } from './sequence.js';

/** Cached content of one block, below the blocks before it. */
interface Node {
  parent: Node | undefined;
  /** At most a block; fewer for the last block of a prompt. */
  tokens: Uint32Array;
  /** How many of them, from the first, were computed as prompt rows. */
  promptRows: number;
  hash: number;
  readonly block: number;
  readonly children: Map<number, Node>;
}

export interface PrefixMatch {
  /** Whole blocks to share, in order. */
  readonly blocks: readonly number[];
  /** A block whose first tokens are the next ones: copied, since the sequence goes on differently in it. */
  readonly partial: { readonly block: number; readonly tokens: number } | undefined;
  /** Tokens that need not be computed. */
  readonly tokens: number;
}

const NOTHING: PrefixMatch = { blocks: [], partial: undefined, tokens: 0 };
/** Children looked at for a common beginning; the newest are the likeliest. */
const PARTIAL_CANDIDATES = 16;

/**
 * Which block holds which tokens, by content: a block is found under the block before it by a hash of its tokens, and compared
 * token by token, so that no collision shares wrongly. What counts as content includes which rows were prompt rows and which
 * generated ones: the two run through different kernels, and a request's bits must not depend on whose cache it found.
 */
export class PrefixCache {
  readonly #root: Node = {
    parent: undefined,
    tokens: new Uint32Array(0),
    promptRows: 0,
    hash: 0,
    block: -1,
    children: new Map(),
  };
  readonly #nodes = new Map<number, Node>();

  /** @param blockTokens tokens per block */
  constructor(private readonly blockTokens: number) {}

  get size(): number {
    return this.#nodes.size;
  }

  has(block: number): boolean {
    return this.#nodes.has(block);
  }

  /** The longest known beginning of a waiting sequence. */
  match(sequence: Sequence): PrefixMatch {
    // The last prompt token is always computed: its row gives the first generated token.
    const limit = sequence.sampled === 0 ? sequence.promptLength - 1 : sequence.target;
    const blocks: number[] = [];
    let node = this.#root;
    let tokens = 0;
    for (; tokens + this.blockTokens <= limit; tokens += this.blockTokens) {
      const content = contentOf(sequence, tokens, this.blockTokens);
      const next = node.children.get(hashOf(content.tokens, content.promptRows));
      if (!next || !sameContent(next, content)) break;
      blocks.push(next.block);
      node = next;
    }
    const partial = this.#partial(node, sequence, tokens, limit);
    if (blocks.length === 0 && !partial) return NOTHING;
    return { blocks, partial, tokens: tokens + (partial?.tokens ?? 0) };
  }

  #partial(node: Node, sequence: Sequence, start: number, limit: number): PrefixMatch['partial'] {
    // Rows of a part can be shared only where they were, and would be, prompt rows.
    const most = Math.min(limit, sequence.promptLength, start + this.blockTokens) - start;
    let best: PrefixMatch['partial'];
    const children = [...node.children.values()].slice(-PARTIAL_CANDIDATES);
    for (const child of children) {
      const length = Math.min(most, child.promptRows);
      let common = 0;
      while (common < length && child.tokens[common] === sequence.prompt[start + common]) common++;
      if (common > (best?.tokens ?? 0)) best = { block: child.block, tokens: common };
    }
    return best;
  }

  /**
   * Records the content of a sequence's blocks of which the tokens before `end` are computed, from block `first` on: whole
   * blocks, and the last part of a prompt. Content that another block has already stays with that one.
   */
  register(sequence: Sequence, first: number, end: number): void {
    let node = this.#pathTo(sequence, first);
    for (let index = first; node && index * this.blockTokens < end; index++) {
      const start = index * this.blockTokens;
      const length = Math.min(this.blockTokens, end - start);
      if (length < this.blockTokens && end !== sequence.promptLength) return;
      node = this.#put(node, sequence.blocks[index]!, contentOf(sequence, start, length));
    }
  }

  /** The node of a sequence's block `count` - 1; undefined when it isn't known (any more). */
  #pathTo(sequence: Sequence, count: number): Node | undefined {
    if (count === 0) return this.#root;
    const own = this.#nodes.get(sequence.blocks[count - 1]!);
    if (own?.tokens.length === this.blockTokens) return own;
    let node: Node = this.#root;
    for (let index = 0; index < count; index++) {
      const content = contentOf(sequence, index * this.blockTokens, this.blockTokens);
      const next = node.children.get(hashOf(content.tokens, content.promptRows));
      if (!next || !sameContent(next, content)) return undefined;
      node = next;
    }
    return node;
  }

  #put(parent: Node, block: number, content: Content): Node | undefined {
    const hash = hashOf(content.tokens, content.promptRows);
    const present = parent.children.get(hash);
    // A collision is left out; equal content is chained to the block that had it first.
    if (present) return sameContent(present, content) ? present : undefined;
    const own = this.#nodes.get(block);
    if (own) {
      // The block has grown: a part of a prompt that generation filled up.
      detach(own);
      own.parent = parent;
      own.tokens = content.tokens;
      own.promptRows = content.promptRows;
      own.hash = hash;
      parent.children.set(hash, own);
      return own;
    }
    const node: Node = { parent, ...content, hash, block, children: new Map() };
    parent.children.set(hash, node);
    this.#nodes.set(block, node);
    return node;
  }

  /** Drops a block's content; what was cached below it can't be found any more and ages out. */
  forget(block: number): void {
    const node = this.#nodes.get(block);
    if (!node) return;
    this.#nodes.delete(block);
    detach(node);
  }
}

function detach(node: Node): void {
  const { parent, hash } = node;
  if (parent?.children.get(hash) === node) parent.children.delete(hash);
}

interface Content {
  readonly tokens: Uint32Array;
  readonly promptRows: number;
}

function contentOf(sequence: Sequence, start: number, length: number): Content {
  const tokens = new Uint32Array(length);
  for (let i = 0; i < length; i++) tokens[i] = sequence.tokenAt(start + i);
  return { tokens, promptRows: Math.max(0, Math.min(length, sequence.promptLength - start)) };
}

const sameContent = (node: Content, content: Content): boolean =>
  node.promptRows === content.promptRows &&
  node.tokens.length === content.tokens.length &&
  node.tokens.every((token, index) => token === content.tokens[index]);

/** FNV-1a over 32-bit words. */
function hashOf(tokens: Uint32Array, promptRows: number): number {
  let hash = Math.imul(0x811c9dc5 ^ promptRows, 0x01000193);
  for (const token of tokens) hash = Math.imul(hash ^ token, 0x01000193);
  return hash >>> 0;
}

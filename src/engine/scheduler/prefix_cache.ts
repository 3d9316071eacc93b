import { nth } from '../../base/lists.js';
import type { BlockRun } from '../../placement/pools.js';
import { Pool } from './block_pool.js';
import type { PromptEviction } from '../../model/compression/budgets.js';
import type { PromptCopy } from './iteration.js';
import { NO_WINDOWS, type Sequence } from './sequence.js';

/** Cached content of one block, below the blocks before it. */
interface Node extends Content, CachedBlock {
  parent: Node | undefined;
  hash: number;
  window: number | undefined;
  readonly children: Map<number, Node>;
  state?: number | undefined;
}

export interface CachedBlock {
  readonly block: number;
  /** In layers with windows; undefined where it isn't there (any more). */
  readonly window: number | undefined;
  /** Of a model with recurrent layers: where the state behind the block's last token is kept. */
  readonly state?: number | undefined;
}

/** What a block holds: at most a block's tokens; fewer for the last one of a sequence. */
interface Content {
  tokens: Uint32Array;
  /** A bit for each of them: 1 where its row was of role `generated`. */
  roles: Uint32Array;
}

export interface PrefixMatch {
  /** Whole blocks to share, in order. */
  readonly blocks: readonly number[];
  /** A block whose first tokens are the next ones: copied, since the sequence goes on differently in it. */
  readonly partial:
    | { readonly block: number; readonly tokens: number; readonly window?: number | undefined }
    | undefined;
  /** Of those blocks, in layers with windows: what the next row sees. */
  readonly windows: BlockRun;
  /** Tokens that need not be computed. */
  readonly tokens: number;
  /** Of the sequence that the blocks were of; undefined where there are none. */
  readonly offset: number | undefined;
  /** Of a model with recurrent layers: the state that the sequence begins with, and tokens in whole blocks that are known beyond it, too. */
  readonly state?: number;
  readonly known?: number;
}

/** What nodes have beside their blocks, by its number. */
class Places {
  readonly #nodes = new Map<number, Node>();

  constructor(private readonly kind: 'window' | 'state') {}

  has(place: number): boolean {
    return this.#nodes.has(place);
  }

  set(place: number, node: Node): void {
    node[this.kind] = place;
    this.#nodes.set(place, node);
  }

  forget(place: number): void {
    const node = this.#nodes.get(place);
    if (node) node[this.kind] = undefined;
    this.#nodes.delete(place);
  }
}

export const NOTHING_CACHED: PrefixMatch = {
  blocks: [],
  partial: undefined,
  windows: NO_WINDOWS,
  tokens: 0,
  offset: undefined,
};
/** Children looked at for a common beginning, the newest first. Most differ within a few tokens. */
const PARTIAL_CANDIDATES = 512;

/**
 * Which block holds which tokens, by content: a block is found under the block before it by a hash of its tokens, and compared
 * token by token, so that no collision shares wrongly. What counts as content includes which rows were prompt rows and which
 * generated ones: the two run through different kernels, and a request's bits must not depend on whose cache it found.
 *
 * Sequences of different offsets have their chunks in different lanes, and those of different adapters other numbers: they have nothing
 * in common.
 */
export class PrefixCache {
  /** By adapter, then by offset. */
  readonly #roots = new Map<number | undefined, Map<number, Node>>();
  readonly #nodes = new Map<number, Node>();
  readonly windowed = new Places('window');
  readonly kept = new Places('state');
  readonly states: Pool | undefined;

  /**
   * @param blockTokens tokens per block
   * @param window keys that a row sees in layers whose blocks are freed when their window has passed; default: there are none
   * @param numStates of a model with recurrent layers, whose sequences begin where a state was kept: how many there is room for
   * @param blocksOf a sequence's blocks, of those that are known here
   */
  constructor(
    private readonly blockTokens: number,
    private readonly window?: number,
    numStates?: number,
    private readonly blocksOf: (sequence: Sequence) => readonly number[] = ({ blocks }) => blocks,
  ) {
    this.states = numStates === undefined ? undefined : new Pool([numStates], this.kept);
  }

  has(block: number): boolean {
    return this.#nodes.has(block);
  }

  /** The longest known beginning of a waiting sequence, of `most` tokens at most. */
  match(sequence: Sequence, most = Infinity): PrefixMatch {
    // The last prompt token is always computed: its row gives the first generated token.
    const known = sequence.sampled === 0 ? sequence.promptLength - 1 : sequence.target;
    const limit = Math.min(known, sequence.computeFrom, most);
    let best = NOTHING_CACHED;
    for (const [offset, root] of this.#roots.get(sequence.adapter) ?? []) {
      const match = this.#matchBelow(root, offset, sequence, limit);
      if (match.tokens > best.tokens || (match.known ?? 0) > (best.known ?? 0)) best = match;
    }
    return best;
  }

  /** Whole blocks that are known of a sequence's beginning, whether or not one could begin with them. */
  pathOf(sequence: Sequence): readonly CachedBlock[] {
    const paths = [...(this.#roots.get(sequence.adapter)?.values() ?? [])].map((root) => {
      const path: Node[] = [];
      for (let node: Node | undefined = root; (path.length + 1) * this.blockTokens <= sequence.promptLength;) {
        const content = contentOf(sequence, path.length * this.blockTokens, this.blockTokens);
        node = node.children.get(hashOf(content));
        if (!node || !sameContent(node, content)) break;
        path.push(node);
      }
      return path;
    });
    return paths.reduce((most, path) => (path.length > most.length ? path : most), []);
  }

  #matchBelow(root: Node, offset: number, sequence: Sequence, limit: number): PrefixMatch {
    const path: Node[] = [];
    let node = root;
    let tokens = 0;
    let state: number | undefined;
    /** Blocks before it. */
    let before = 0;
    for (; tokens + this.blockTokens <= limit; tokens += this.blockTokens) {
      const content = contentOf(sequence, tokens, this.blockTokens);
      const next = node.children.get(hashOf(content));
      if (!next || !sameContent(next, content)) break;
      path.push(next);
      node = next;
      if (node.state === undefined) continue;
      ({ state } = node);
      before = path.length;
    }
    const known = tokens;
    if (this.states) path.length = before;
    let partial = this.states ? undefined : this.#partial(node, sequence, tokens, limit);
    tokens = path.length * this.blockTokens + (partial?.tokens ?? 0);
    let windows = this.#windowsOf(path, tokens);
    if (this.states && (before === 0 || !windows)) return { ...NOTHING_CACHED, known };
    // A row sees nothing that isn't there: where a window's blocks are gone, a shorter beginning may have its own still.
    while (!windows) {
      if (partial) partial = undefined;
      else path.pop();
      tokens = path.length * this.blockTokens;
      windows = this.#windowsOf(path, tokens);
    }
    const blocks = path.map(({ block }) => block);
    return { blocks, partial, windows, tokens, offset, ...(state !== undefined && { state, known }) };
  }

  /** What the row at position `next` sees of whole blocks, in layers with windows; undefined where one of them isn't there. */
  #windowsOf(path: readonly Node[], next: number): BlockRun | undefined {
    if (this.window === undefined) return NO_WINDOWS;
    const first = Math.min(path.length, Math.floor(Math.max(0, next - this.window + 1) / this.blockTokens));
    const blocks: number[] = [];
    for (let at = path.length - 1; at >= first; at--) {
      const { window } = nth(path, at);
      if (window === undefined) return undefined;
      blocks.unshift(window);
    }
    return { first, blocks };
  }

  #partial(node: Node, sequence: Sequence, start: number, limit: number): PrefixMatch['partial'] {
    const most = Math.min(limit, start + this.blockTokens) - start;
    let best: PrefixMatch['partial'];
    const children = [...node.children.values()].slice(-PARTIAL_CANDIDATES).toReversed();
    for (const { block, tokens, roles, window } of children) {
      if (best?.tokens === most) break;
      // A window of one sees nothing of it.
      if (window === undefined && (this.window ?? 1) > 1) continue;
      const length = Math.min(most, tokens.length);
      let common = 0;
      while (
        common < length &&
        tokens[common] === sequence.tokenAt(start + common) &&
        isGenerated(roles, common) === (sequence.roleAt(start + common) === 'generated')
      ) {
        common++;
      }
      if (common > (best?.tokens ?? 0)) best = { block, tokens: common, window };
    }
    return best;
  }

  /**
   * Records the content of a sequence's blocks of which the tokens before `end` are computed, from block `first` on: whole
   * blocks, and with `partial` the rest. Content that another block has already stays with that one.
   */
  register(sequence: Sequence, first: number, end: number, partial: boolean): void {
    let node = this.#pathTo(sequence, first);
    for (let index = first; node && index * this.blockTokens < end; index++) {
      const start = index * this.blockTokens;
      const length = Math.min(this.blockTokens, end - start);
      if (length < this.blockTokens && !partial) return;
      node = this.#put(node, nth(this.blocksOf(sequence), index), contentOf(sequence, start, length));
      if (node) this.#putWindow(node, sequence.windows.blocks[index - sequence.windows.first]);
    }
  }

  /** The state behind the first `end` tokens of a sequence is kept at a place of the pool, which the sequence gives up. */
  keep(sequence: Sequence, end: number, place: number): void {
    const node = end % this.blockTokens === 0 ? this.#pathTo(sequence, end / this.blockTokens) : undefined;
    if (node && node.state === undefined) this.kept.set(place, node);
    this.states?.release([place]);
  }

  /** The state behind the first `end` tokens of a sequence is no longer of use. */
  dropState(sequence: Sequence, end: number): void {
    this.#dropState(this.#pathTo(sequence, end / this.blockTokens));
  }

  #dropState(node: Node | undefined): void {
    if (node?.state === undefined) return;
    const place = node.state;
    this.states?.hold(place);
    this.kept.forget(place);
    this.states?.release([place]);
  }

  #rootOf({ adapter, offset }: Sequence): Node {
    const roots = this.#roots.get(adapter) ?? new Map<number, Node>();
    this.#roots.set(adapter, roots);
    const known = roots.get(offset);
    if (known) return known;
    const empty = { tokens: new Uint32Array(0), roles: new Uint32Array(0) };
    const root: Node = { parent: undefined, ...empty, hash: 0, block: -1, window: undefined, children: new Map() };
    roots.set(offset, root);
    return root;
  }

  /** The node of a sequence's block `count` - 1; undefined when it isn't known (any more). */
  #pathTo(sequence: Sequence, count: number): Node | undefined {
    const root = this.#rootOf(sequence);
    if (count === 0) return root;
    const own = this.#nodes.get(nth(this.blocksOf(sequence), count - 1));
    if (own?.tokens.length === this.blockTokens) return own;
    let node = root;
    for (let index = 0; index < count; index++) {
      const content = contentOf(sequence, index * this.blockTokens, this.blockTokens);
      const next = node.children.get(hashOf(content));
      if (!next || !sameContent(next, content)) return undefined;
      node = next;
    }
    return node;
  }

  #put(parent: Node, block: number, content: Content): Node | undefined {
    const hash = hashOf(content);
    const present = parent.children.get(hash);
    // A collision is left out; equal content is chained to the block that had it first.
    if (present) return sameContent(present, content) ? present : undefined;
    const own = this.#nodes.get(block);
    if (own) {
      // The block has grown: a part of a prompt that generation filled up.
      detach(own);
      own.parent = parent;
      own.tokens = content.tokens;
      own.roles = content.roles;
      own.hash = hash;
      parent.children.set(hash, own);
      return own;
    }
    const node: Node = { parent, ...content, hash, block, window: undefined, children: new Map() };
    parent.children.set(hash, node);
    this.#nodes.set(block, node);
    return node;
  }

  /** The content is in this block too, in layers with windows. */
  #putWindow(node: Node, window: number | undefined): void {
    if (window === undefined || node.window !== undefined) return;
    // It has grown since it was known as the beginning of another's content.
    this.windowed.forget(window);
    this.windowed.set(window, node);
  }

  /** Drops a block's content; what was cached below it can't be found any more and ages out. */
  forget(block: number): void {
    const node = this.#nodes.get(block);
    if (!node) return;
    this.#nodes.delete(block);
    if (node.window !== undefined) this.windowed.forget(node.window);
    detach(node);
    this.#dropState(node);
  }
}

function detach(node: Node): void {
  const { parent, hash } = node;
  if (parent?.children.get(hash) === node) parent.children.delete(hash);
}

function contentOf(sequence: Sequence, start: number, length: number): Content {
  const tokens = new Uint32Array(length);
  const roles = new Uint32Array((length + 31) >>> 5);
  for (let i = 0; i < length; i++) {
    tokens[i] = sequence.tokenAt(start + i);
    if (sequence.roleAt(start + i) === 'generated') roles[i >>> 5]! |= 1 << (i & 31);
  }
  return { tokens, roles };
}

const isGenerated = (roles: Uint32Array, at: number): boolean => ((roles[at >>> 5]! >>> (at & 31)) & 1) === 1;

const sameWords = (a: Uint32Array, b: Uint32Array): boolean =>
  a.length === b.length && a.every((word, index) => word === b[index]);

const sameContent = (node: Content, content: Content): boolean =>
  sameWords(node.tokens, content.tokens) && sameWords(node.roles, content.roles);

/** FNV-1a over 32-bit words. */
function hashOf({ tokens, roles }: Content): number {
  let hash = 0x811c9dc5;
  for (const words of [roles, tokens]) for (const word of words) hash = Math.imul(hash ^ word, 0x01000193);
  return hash >>> 0;
}

/**
 * What prompts begin with, where their cache is compressed when they end: whole, in blocks of a pool of its own. They are copied from a
 * sequence before its prompt's last chunk, which compresses it, and to sequences that begin alike.
 */
export class KeptPrompts {
  readonly #cache: PrefixCache;
  readonly pool: Pool;

  constructor(
    readonly numBlocks: number,
    readonly blockTokens: number,
    readonly eviction: PromptEviction,
  ) {
    this.#cache = new PrefixCache(blockTokens, undefined, undefined, ({ keptBlocks }) => keptBlocks);
    this.pool = new Pool([numBlocks], this.#cache);
  }

  /** The longest beginning of a waiting sequence that is there. Its blocks are this pool's. */
  match(sequence: Sequence): PrefixMatch {
    return this.#cache.match(sequence, this.#before(sequence));
  }

  /** Tokens before the chunk that compresses the prompt, which has its whole window. */
  #before({ promptLength }: Sequence): number {
    return promptLength - Math.max(1, this.eviction.windowOf(promptLength));
  }

  /** Where the last chunk of a sequence is to begin at the earliest, so that what is before can be kept: none where that is there already. */
  edgesOf(sequence: Sequence, { tokens }: PrefixMatch): number[] {
    const edge = Math.floor(this.#before(sequence) / this.blockTokens) * this.blockTokens;
    return edge > tokens ? [edge] : [];
  }

  /** A sequence is admitted, and begins with what was found: what is to be copied to it, if anything. */
  begin(sequence: Sequence, { blocks, partial }: PrefixMatch): PromptCopy | undefined {
    for (const block of blocks) this.pool.hold(block);
    sequence.keptBlocks = [...blocks];
    if (sequence.keepsAt.length === 0) this.leave(sequence);
    const all = partial ? [...blocks, partial.block] : blocks;
    return all.length > 0 ? { sequence, first: 0, blocks: [...all] } : undefined;
  }

  /** All tokens before the edge are computed by the iteration: what is to be copied from the sequence then, as far as there is room. */
  keep(sequence: Sequence, edge: number): PromptCopy | undefined {
    const first = sequence.keptBlocks.length;
    const count = Math.min(edge / this.blockTokens - first, this.pool.numFree);
    if (count <= 0) return undefined;
    const blocks = Array.from({ length: count }, () => this.pool.allocate());
    sequence.keptBlocks.push(...blocks);
    return { sequence, first, blocks };
  }

  /** The iteration that did so is over: others may begin with it. */
  confirm(sequence: Sequence): void {
    this.#cache.register(sequence, 0, sequence.keptBlocks.length * this.blockTokens, false);
    this.leave(sequence);
  }

  /** What the sequence held is of others only. */
  leave(sequence: Sequence): void {
    this.pool.release(sequence.keptBlocks);
    sequence.keptBlocks = [];
  }
}

import type { CacheDirectory, CacheFileHandle, CacheWritable } from '../cache/opfs.js';

interface Node {
  removed: boolean;
}
interface FileNode extends Node {
  data: Uint8Array<ArrayBuffer>;
  /** Goes up with every change: a File got before is no longer readable after. */
  changes: number;
}
interface DirectoryNode extends Node {
  readonly children: Map<string, FileNode | DirectoryNode>;
  /** Names that are being removed at this moment. */
  readonly removing: Set<string>;
}

/** What all handles of one file system share. */
interface Disk {
  readonly root: DirectoryNode;
  quota: number;
  /** Called before every write reaches a file. */
  beforeWrite: ((bytes: number) => void | Promise<void>) | undefined;
}

const error = (name: string): DOMException => new DOMException(`${name} (of the file system in memory)`, name);
const newFolder = (): DirectoryNode => ({ removed: false, children: new Map(), removing: new Set() });
const isFile = (node: FileNode | DirectoryNode): node is FileNode => 'data' in node;

/**
 * An origin private file system in memory, with the habits of the real one that matter to a cache: a file created by
 * getFileHandle is there at once and empty; written data appears at close() only; handles of removed entries throw
 * NotFoundError; a File of something changed since throws NotReadableError; beyond the quota QuotaExceededError.
 */
export class MemoryFolder implements CacheDirectory {
  readonly disk: Disk;
  readonly #node: DirectoryNode;

  constructor(disk: Disk = { root: newFolder(), quota: Infinity, beforeWrite: undefined }, node = disk.root) {
    this.disk = disk;
    this.#node = node;
  }

  async getDirectoryHandle(name: string, options: { create?: boolean } = {}): Promise<MemoryFolder> {
    const node = this.#child(name, options.create, newFolder);
    if (isFile(node)) throw error('TypeMismatchError');
    return new MemoryFolder(this.disk, node);
  }

  async getFileHandle(name: string, options: { create?: boolean } = {}): Promise<MemoryFile> {
    const node = this.#child(name, options.create, () => ({ removed: false, data: new Uint8Array(0), changes: 0 }));
    if (!isFile(node)) throw error('TypeMismatchError');
    return new MemoryFile(this.disk, node);
  }

  /** As Chromium does, a removal locks the name, whether or not there is such an entry, and refuses who comes meanwhile. */
  async removeEntry(name: string, options: { recursive?: boolean } = {}): Promise<void> {
    const { removing } = this.#node;
    if (removing.has(name)) throw error('NoModificationAllowedError');
    removing.add(name);
    await new Promise<void>((done) => void setImmediate(done));
    removing.delete(name);
    const node = this.#child(name, false);
    if (!isFile(node) && node.children.size > 0 && !options.recursive) throw error('InvalidModificationError');
    remove(node);
    this.#node.children.delete(name);
  }

  async *keys(): AsyncGenerator<string> {
    this.#check();
    const names = [...this.#node.children.keys()]; // as they are now: the caller may remove some
    for (const name of names) {
      await Promise.resolve();
      yield name;
    }
  }

  /** Bytes of all files below. */
  get used(): number {
    return bytesBelow(this.#node);
  }

  /** Every file below, as 'folder/file'. */
  paths(): string[] {
    const walk = (node: DirectoryNode, prefix: string): string[] =>
      [...node.children].flatMap(([name, child]) =>
        isFile(child) ? [prefix + name] : walk(child, `${prefix}${name}/`),
      );
    return walk(this.#node, '');
  }

  /** A file below, as text. */
  text(path: string): string {
    let node: FileNode | DirectoryNode = this.#node;
    for (const name of path.split('/')) node = (node as DirectoryNode).children.get(name)!;
    return new TextDecoder().decode((node as FileNode).data);
  }

  /** Writes a file below without ceremony, as a crash or a stranger might have. */
  async put(path: string, data: string | Uint8Array<ArrayBuffer>): Promise<void> {
    const [first, ...rest] = path.split('/') as [string, ...string[]];
    if (rest.length > 0) return (await this.getDirectoryHandle(first, { create: true })).put(rest.join('/'), data);
    const node = this.#child(first, true, () => ({ removed: false, data: new Uint8Array(0), changes: 0 })) as FileNode;
    node.data = typeof data === 'string' ? new TextEncoder().encode(data) : data;
    node.changes++;
  }

  #child(name: string, create: boolean | undefined, make?: () => FileNode | DirectoryNode): FileNode | DirectoryNode {
    this.#check();
    if (name === '' || name === '.' || name === '..' || /[/\\]/.test(name))
      throw new TypeError(`name '${name}' is not allowed`);
    let node = this.#node.children.get(name);
    if (!node) {
      if (!create || !make) throw error('NotFoundError');
      node = make();
      this.#node.children.set(name, node);
    }
    return node;
  }

  #check(): void {
    if (this.#node.removed) throw error('NotFoundError');
  }
}

class MemoryFile implements CacheFileHandle {
  readonly #disk: Disk;
  readonly #node: FileNode;

  constructor(disk: Disk, node: FileNode) {
    this.#disk = disk;
    this.#node = node;
  }

  async getFile(): Promise<Blob> {
    if (this.#node.removed) throw error('NotFoundError');
    return snapshot(this.#node, this.#node.changes, 0, this.#node.data.byteLength);
  }

  async createWritable(): Promise<CacheWritable> {
    const node = this.#node;
    const disk = this.#disk;
    if (node.removed) throw error('NotFoundError');
    let written = new Uint8Array(0);
    return {
      async write(data) {
        await disk.beforeWrite?.(data.byteLength);
        if (bytesBelow(disk.root) - node.data.byteLength + written.byteLength + data.byteLength > disk.quota) {
          throw error('QuotaExceededError');
        }
        const longer = new Uint8Array(written.byteLength + data.byteLength);
        longer.set(written);
        longer.set(data, written.byteLength);
        written = longer;
      },
      async close() {
        if (node.removed) throw error('NotFoundError');
        node.data = written;
        node.changes++;
      },
      async abort() {
        written = new Uint8Array(0);
      },
    };
  }
}

/** The bytes as they were; reading them later fails when the file has changed or is gone. */
function snapshot(node: FileNode, changes: number, start: number, end: number): Blob {
  const bytes = async (): Promise<ArrayBuffer> => {
    await Promise.resolve();
    if (node.removed || node.changes !== changes) throw error('NotReadableError');
    return node.data.slice(start, end).buffer;
  };
  const blob = {
    size: end - start,
    slice: (from = 0, to = end - start) => snapshot(node, changes, start + from, Math.min(start + to, end)),
    arrayBuffer: bytes,
    text: async () => new TextDecoder().decode(await bytes()),
  };
  return blob as Blob;
}

const bytesBelow = (node: DirectoryNode): number =>
  [...node.children.values()].reduce(
    (sum, child) => sum + (isFile(child) ? child.data.byteLength : bytesBelow(child)),
    0,
  );

function remove(node: FileNode | DirectoryNode): void {
  node.removed = true;
  if (!isFile(node)) for (const child of node.children.values()) remove(child);
}

/** Where keys and values are kept in pieces, by name: a folder, or a file. Every call may fail: what is kept is never needed. */
export interface KvFolder {
  /** For people. */
  readonly name: string;
  /** Of a file of one model: the text that says whose it is, as it was read. */
  readonly subject?: string | undefined;
  /** What there is, what was used longest ago first. */
  list(): Promise<readonly { readonly name: string; readonly bytes: number }[]>;
  read(name: string): Promise<Uint8Array<ArrayBuffer> | undefined>;
  write(name: string, bytes: Uint8Array<ArrayBuffer>): Promise<void>;
  remove(name: string): Promise<void>;
  /** It was used now. */
  touch?(name: string): Promise<void>;
  /** What was written and used is there, and of this subject, when it resolves. */
  flush?(subject: string): Promise<void>;
}

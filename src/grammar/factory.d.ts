/** XGrammar as a function that makes an instance of its own, which writes to `console`: the builds, Node and tests make it of the package. */
declare module '@mlc-ai/web-xgrammar?factory' {
  const factory: (
    console: Readonly<Record<'log' | 'warn' | 'error', (...parts: unknown[]) => void>> & {
      /** Its memory, at most. */
      readonly maxBytes: number;
      /** Told of its memory when it has grown. */
      readonly grown: (bytes: number) => void;
    },
  ) => typeof import('@mlc-ai/web-xgrammar');
  export default factory;
}

/** Whether this runs in Node, and not in a page or its workers. */
export const isNode = (): boolean => globalThis.process?.versions?.node !== undefined;

let base: string | undefined;

/** What relative addresses are relative to: the page's own, in a worker its script's, or what it was told. */
export const baseAddress = (): string | undefined => base ?? globalThis.document?.baseURI ?? globalThis.location?.href;
/** In a worker that works for pages: theirs. */
export const setBaseAddress = (address: string): void => void (base = address);

/** Whether this runs in Node, and not in a page or its workers. */
export const isNode = (): boolean => globalThis.process?.versions?.node !== undefined;

/** The last part of a path, a URL or a name; of a snapshot in the Hub's cache, the repository's name. */
export const modelName = (source: string): string =>
  source
    .replace(/models--(?:[^\\/]+--)?([^\\/]+)[\\/]snapshots[\\/][0-9a-f]{40}[\\/]?$/, '$1')
    .replace(/^cluster:/, '')
    .replace(/[?#].*$/, '')
    .split(/[\\/]/)
    .filter(Boolean)
    .at(-1) ?? source;

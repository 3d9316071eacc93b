/** The code of a rank's worker, one script, compressed by gzip, as base64: filled in by the build (scripts/build_plugins.mjs). */
export const text: string = '';

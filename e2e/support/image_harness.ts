/** What images.spec.ts runs in a page. */
export { decodeImage } from '../../src/images/decode.js';

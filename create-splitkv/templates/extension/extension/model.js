import { load } from './splitkv/splitkv.js';

/**
 * All pages of the extension have one model: of this name, with these options, which are in panel.html, too. Ten minutes after the last
 * question its memory is freed, until the next one.
 */
export const loadModel = (onProgress) => load('__MODEL__', { share: true, idle: 600, onProgress });

/** From now on the model stays when the page that loaded it closes. */
export const keepModel = () => chrome.runtime.sendMessage('keep');

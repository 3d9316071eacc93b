import { makeButton } from '../../shared/dom.js';

const SVG = 'http://www.w3.org/2000/svg';

/** Paths on a grid of 24, drawn as lines. */
const PATHS = {
  send: 'M12 19V5M5 12l7-7 7 7',
  stop: 'M7 7h10v10H7z',
  new: 'M12 5v14M5 12h14',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  edit: 'M4 20h4L19 9l-4-4L4 16zM13 7l4 4',
  again: 'M20 11a8 8 0 1 0-2.3 6.3M20 4v7h-7',
  settings: 'M4 7h10M18 7h2M4 17h2M10 17h10M16 5v4M8 15v4',
  models: 'M12 3 4 7.5v9L12 21l8-4.5v-9zM4 7.5l8 4.5 8-4.5M12 12v9',
  details: 'M12 11v6M12 7v.5M12 3a9 9 0 1 0 0 18 9 9 0 1 0 0-18z',
  attach: 'M20 11.5 12 19.5a5 5 0 0 1-7-7l8.5-8.5a3.5 3.5 0 0 1 5 5l-8.5 8.5a1.7 1.7 0 0 1-2.5-2.5L15 7.5',
  camera: 'M4 8h3l2-3h6l2 3h3v11H4zM12 10a3.2 3.2 0 1 0 0 6.4 3.2 3.2 0 1 0 0-6.4z',
  microphone: 'M12 3a3 3 0 0 0-3 3v5a3 3 0 0 0 6 0V6a3 3 0 0 0-3-3zM6 11a6 6 0 0 0 12 0M12 17v4',
  remove: 'M6 6l12 12M18 6 6 18',
  file: 'M6 3h8l4 4v14H6zM14 3v4h4M9 12h6M9 16h6',
  before: 'M15 5l-7 7 7 7',
  after: 'M9 5l7 7-7 7',
  down: 'M12 5v14M5 12l7 7 7-7',
} as const;

export type IconName = keyof typeof PATHS;

export const iconButton = (name: IconName, press: () => unknown, className = ''): HTMLButtonElement =>
  makeButton(`icon-button ${className}`.trimEnd(), icon(name), press);

export const icon = (name: IconName): SVGElement => drawing(PATHS[name]);

export function drawing(lines: string): SVGElement {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('aria-hidden', 'true');
  svg.setAttribute('class', 'icon');
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', lines);
  svg.append(path);
  return svg;
}

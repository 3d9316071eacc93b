/** The gallery's React component in a page of its own, with the model that the gallery names. */
import { createElement } from 'react';
import { createRoot } from 'react-dom/client';
import Assistant from '../../recipes/react/Assistant.jsx';
import { element } from '../shared/elements.js';
import { askedModel } from './models.js';

const model = askedModel(new URLSearchParams(location.search).get('model'));
createRoot(element('root', HTMLDivElement)).render(createElement(Assistant, { model }));

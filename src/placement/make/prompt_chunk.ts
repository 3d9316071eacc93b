import { pipelineDepth, type Plan } from '../plan.js';

/**
 * Prompt tokens that a step computes unless told otherwise. A pipeline's stages work side by side on the steps of a prompt, so it
 * takes more and smaller ones.
 */
export const defaultPromptChunk = (plan: Plan): number => (pipelineDepth(plan) > 1 ? 256 : 512);

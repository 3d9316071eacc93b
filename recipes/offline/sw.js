importScripts('splitkv/splitkv-service_worker.js');

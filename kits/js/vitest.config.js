export default { test: { include: ['test/*.spec.ts'], testTimeout: 60_000, hookTimeout: 60_000, watch: false } };

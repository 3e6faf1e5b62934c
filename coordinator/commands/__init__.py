"""The commands around replays: simulate, plan, trace, tune. Each reads its options and shows what came."""

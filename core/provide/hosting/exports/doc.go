// Package exports tells consumers which services of this cluster they may use (core/consume/clusterset): what a ServiceExport names in a
// namespace that both owners name. The pods behind them are shared with the consumer (link.Linker.Share), under addresses that it reaches,
// before it is told. A consumer that cannot be reached keeps what it has; when this cluster's owner takes his word back, it ends at once.
// The package must never tell of an endpoint that is no pod of this cluster: of guests, of this machine, or at another peer.
package exports

package hostnet

// Kinds of changes; together they are a set.
type Kinds uint8

const (
	Links Kinds = 1 << iota
	Addresses
	Routes  // of IPv4
	Routes6 // of IPv6

	All = Links | Addresses | Routes | Routes6
)

package fence

// Names of the nftables tables.
const (
	// Table is the fence for IPv4, and that for IPv6 or one that drops guests' IPv6.
	Table = "kith-fence"

	// Limits bound how many connections a peer's guests, and its home through the tunnel, open. They are a table of their own because a kernel may
	// not have the words for them, and the fence stands without. A chain in it remembers, and so stays as it is when others change.
	Limits = "kith-limits"

	// Bandwidth bounds what guests get and send, where a policy says so; for both families in one table (inet).
	Bandwidth = "kith-bandwidth"

	// Links bind guests to their links, below IP: of the families of ARP and of bridges, which a kernel may not have.
	Links = "kith-links"
)

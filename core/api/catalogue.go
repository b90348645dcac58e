package api

import (
	"net/url"
	"time"
)

// Listed is what a peer, as a catalogue, shows of somebody: signed by him, but for the addresses.
type Listed struct {
	Name    string `json:"name"` // as he calls himself; a hint
	ID      string `json:"id"`
	ShortID string `json:"shortId"`
	// Peer is his name here; left out when he is not known here.
	Peer string `json:"peer,omitempty"`
	// At is the peer whose catalogue it is, AtID its ID.
	At   string `json:"at"`
	AtID string `json:"atId"`
	// Addresses where the catalogue reaches him: host:port.
	Addresses List[string] `json:"addresses"`
	// Resources that somebody new would be offered, and their prices for one unit and hour; what is not named is free.
	Resources Resources         `json:"resources"`
	Prices    map[string]string `json:"prices,omitempty"`
	Created   time.Time         `json:"created"`
	NotAfter  time.Time         `json:"notAfter"`
}

// CatalogueOptions are the query of the call that reads catalogues.
type CatalogueOptions struct {
	Peer string // whose; "": of all peers that keep one and are there
}

// Query is what ParseCatalogueOptions reads.
func (o CatalogueOptions) Query() url.Values {
	if o.Peer == "" {
		return url.Values{}
	}
	return url.Values{"peer": {o.Peer}}
}

// ParseCatalogueOptions reads them.
func ParseCatalogueOptions(q url.Values) CatalogueOptions {
	return CatalogueOptions{Peer: q.Get("peer")}
}

package hosting

import (
	"encoding/json"

	"kith.dev/core/identity"
)

// consumerIn is the ID of the consumer that a contract's document names. A Peer that was forgotten and another of its name
// must not be taken for each other.
func consumerIn(document []byte) (string, bool) {
	var doc struct {
		Consumer struct {
			ID identity.ID `json:"id"`
		} `json:"consumer"`
	}
	if err := json.Unmarshal(document, &doc); err != nil || doc.Consumer.ID.IsZero() {
		return "", false
	}
	return doc.Consumer.ID.String(), true
}

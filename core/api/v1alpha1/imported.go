package v1alpha1

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
)

// ImportedService is the name of the Service that has the address and the endpoints of a ServiceImport, in its namespace; with more words, of its
// EndpointSlices. Nobody calls it by that name but Kith and its DNS.
func ImportedService(serviceImport string, more ...string) string {
	h := sha256.New()
	for _, w := range append([]string{serviceImport}, more...) {
		fmt.Fprintf(h, "%d:%s", len(w), w)
	}
	return "kith-import-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil)[:10]))
}

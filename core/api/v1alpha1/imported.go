package v1alpha1

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"strings"
)

// ImportedName gives the name in its cluster of a service that clusters have in common (KEP-1645), as its clusterset's name is asked for, in lower case:
// the endpoints of a ServiceImport are those of the service of that name. False: it is no such name.
func ImportedName(name string) (local string, ok bool) {
	rest, ok := strings.CutSuffix(name, ".svc.clusterset.local.")
	labels := strings.Split(rest, ".")
	if !ok || len(labels) < 2 {
		return "", false
	}
	service := len(labels) - 2
	before := labels[:service]
	if len(before) == 2 && !strings.HasPrefix(before[0], "_") { // a pod of one cluster
		before = before[:1]
	}
	parts := append(slices.Clone(before), ImportedService(labels[service]), labels[service+1])
	return strings.Join(parts, ".") + ".svc.cluster.local.", true
}

// ImportedService is the name of the Service that has the address and the endpoints of a ServiceImport, in its namespace; with more words, of its
// EndpointSlices. Nobody calls it by that name but Kith and its DNS.
func ImportedService(serviceImport string, more ...string) string {
	h := sha256.New()
	for _, w := range append([]string{serviceImport}, more...) {
		fmt.Fprintf(h, "%d:%s", len(w), w)
	}
	return "kith-import-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil)[:10]))
}

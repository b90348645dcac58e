package hosting

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// freshness is how new the answer to a list has to be. The API server answers lists from its watch cache. For
// the newest it first waits until that has caught up with the store: milliseconds with etcd, up to a second
// with kine, which reports progress seldom. For "not older than what I saw" it need not wait.
type freshness bool

const (
	newest     freshness = true
	seenBefore freshness = false
)

// The kinds whose versions are kept apart.
const (
	kindContract  = "Contract"
	kindPeer      = "Peer"
	kindPolicy    = "SharingPolicy"
	kindNamespace = "Namespace"
)

// saw notes a version of an object or list of the kind; the next list is at least as new.
func (c *contracts) saw(kind, version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if order, err := resourceversion.CompareResourceVersion(version, c.seen[kind]); c.seen[kind] == "" || err == nil && order > 0 {
		c.seen[kind] = version
	}
}

func (c *contracts) notOlder(kind string, how freshness) client.ListOption {
	c.mu.Lock()
	defer c.mu.Unlock()
	version := c.seen[kind]
	if how == newest || version == "" {
		return &client.ListOptions{}
	}
	return &client.ListOptions{Raw: &metav1.ListOptions{
		ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}}
}

// recent is for questions that are asked again and again until the answer is no: whatever the watch cache has.
func recent() client.ListOption {
	return &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
}

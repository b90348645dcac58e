// Package nodedevice puts the address of this machine's node on a device of its own: the node's address must not change when the laptop
// changes its network, and must be there when it has none. kith-k8s does it for itself, kithd for a K3s that it runs. Other devices it never
// touches.
package nodedevice

package volumes

import (
	"errors"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
)

// errNoFolder: only volumes that are folders of the node that kithd runs on are moved.
var errNoFolder = errors.New("its volume cannot be reached by kithd")

// Folder is where the files of a volume are, on the node that kithd runs on. The error says why it has none there: it is of another node, or no folder.
func Folder(v *corev1.PersistentVolume, node string) (string, error) {
	var path string
	switch {
	case v.Spec.Local != nil:
		path = v.Spec.Local.Path
	case v.Spec.HostPath != nil:
		path = v.Spec.HostPath.Path
	default:
		return "", fmt.Errorf("%w: it is no folder of a node", errNoFolder)
	}
	if on := hostOf(v); node == "" || on != node {
		return "", fmt.Errorf("%w: it is a folder of node %q, and kithd is not there", errNoFolder, on)
	}
	if !filepath.IsAbs(path) || path != filepath.Clean(path) {
		return "", fmt.Errorf("%w: %q is no clean path", errNoFolder, path)
	}
	return path, nil
}

// hostOf is the one node that a volume is bound to; "" when there is none, or several.
func hostOf(v *corev1.PersistentVolume) string {
	if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil || len(v.Spec.NodeAffinity.Required.NodeSelectorTerms) != 1 {
		return ""
	}
	for _, e := range v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions {
		if e.Key == corev1.LabelHostname && e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 {
			return e.Values[0]
		}
	}
	return ""
}

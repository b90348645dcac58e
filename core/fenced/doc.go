// Package fenced says on which nodes of this cluster guests may run: where a fence of Kith's is alive, by a label on the node
// (v1alpha1.LabelFenced). core/fence keeps one fence on one machine and says how it is; here that is known of all nodes, in the one kithd that
// works. core/hosting sends guests to such nodes alone, core/supply counts no other, and the daemon says which are left out, and why.
//
// It fails closed: of a node of which nothing is known, or not for long enough, guests stay away. It must never touch a node but for its label
// and the annotation beside it.
package fenced

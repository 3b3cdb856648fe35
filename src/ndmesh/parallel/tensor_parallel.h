#pragma once

#include "ndmesh/comm/world.h"
#include "ndmesh/nn/decoder.h"

namespace ndmesh::parallel {

/// Tensor and sequence parallelism (Shoeybi et al., 2019; Korthikanti et al., 2022): attaches the collectives of tp to the
/// ports of a decoder that was built of layout::tensor_part, whose widths are those of this rank.
///   splits       heads and feed-forward width of each block, rows of the table and of the head; and, with sequence
///                parallelism (part.sequence_parts above 1), the tokens of norms, residual sums and learned positions
///   replicates   norms, learned positions, biases of row-parallel linears; KV heads where tp is more than there are
///   sends        twice a block, forward and backward: an all-reduce of the hidden states, or a reduce-scatter and an
///                all-gather, which is as many bytes; in backward the all-gather once more, since its result is not kept.
///                Per chunk of the loss three numbers a token. For norms over all heads (olmo2) one number a token, forward
///                and backward.
///   relieves     parameters, gradients, optimizer state, activations, time
///   fails when   the link between tp ranks is slower than their products: every collective is waited for
///
/// `model` and `communicator` must outlive each other's use. Call it before the model is laid out. With one tp rank nothing
/// is attached.
void tensor_parallel(nn::Decoder& model, comm::Communicator& communicator);

}  // namespace ndmesh::parallel

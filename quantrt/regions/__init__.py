# SPDX-License-Identifier: Apache-2.0
"""Stage 3: Model -> Regions. Nodes grouped into what one kernel computes, whatever the precision."""
